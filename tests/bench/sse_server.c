/* A lean chat-completions server for measurements: one thread, epoll, a fixed answer, and its own log as the truth.
 *
 *   sse_server LOG TTFT_US ITL_US TOKENS
 *
 * Prints its port (on 127.0.0.1) and serves until standard input ends. Each POST gets TOKENS content chunks, one send()
 * each: the first TTFT_US after the request has arrived, the next every ITL_US, by absolute deadlines. The log has one
 * line per request, in order of arrival: number, arrival, first send, last send (CLOCK_REALTIME, microseconds; 0 is
 * never). The number goes out as the header `x-ramptrace-unit: r-NUMBER`, so that a client's row can be joined to it.
 *
 * Every stream has the same pace, so that due instants form two queues (first tokens, later tokens) that are sorted by
 * construction: no heap is needed, and a send costs the same at any number of streams.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FDS = 65536, MAX_REQUESTS = 4000000, BUFFER = 65536, QUEUE = 1 << 18 };

typedef struct {
    char *in;           /* bytes of the request that is being read */
    size_t have;
    char *out;          /* bytes that the socket did not take yet */
    size_t out_bytes, out_room;
    uint32_t generation; /* tells a reused descriptor from the one that a queue entry means */
    int busy;
} Conn;

typedef struct { int64_t arrival, first, last; } Line;
typedef struct { int64_t due; int fd; uint32_t generation; int64_t number; int sent; } Due;
typedef struct { Due items[QUEUE]; size_t head, tail; } Queue;

static Conn conns[MAX_FDS];
static Line *lines;
static int64_t requests;
static Queue firsts, laters;
static int poller, tokens;
static int64_t ttft_us, itl_us;
static uint32_t generations;

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void push(Queue *q, Due due) {
    if (q->tail - q->head >= QUEUE) { fprintf(stderr, "sse_server: too many streams\n"); exit(1); }
    q->items[q->tail++ % QUEUE] = due;
}

static void hang_up(int fd) {
    Conn *c = &conns[fd];
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof *c);
    close(fd);
}

static int put(int fd, const char *data, size_t bytes) { /* 0 when the peer is gone */
    Conn *c = &conns[fd];
    if (!c->out_bytes) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return 0;
        if (n > 0) { data += n; bytes -= (size_t)n; }
        if (!bytes) return 1;
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_MOD, fd, &e);
    }
    if (c->out_bytes + bytes > c->out_room) {
        c->out_room = (c->out_bytes + bytes) * 2;
        c->out = realloc(c->out, c->out_room);
    }
    memcpy(c->out + c->out_bytes, data, bytes);
    c->out_bytes += bytes;
    return 1;
}

static int flush_out(int fd) {
    Conn *c = &conns[fd];
    ssize_t n = send(fd, c->out, c->out_bytes, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN;
    memmove(c->out, c->out + n, c->out_bytes - (size_t)n);
    c->out_bytes -= (size_t)n;
    if (!c->out_bytes) {
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_MOD, fd, &e);
    }
    return 1;
}

static size_t event(char *to, const char *json) { /* one chunk of a chunked body */
    size_t bytes = strlen(json) + 8;
    return (size_t)sprintf(to, "%zx\r\ndata: %s\n\n\r\n", bytes, json);
}

#define CHUNK "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\",\"choices\":["
static const char *TOKEN = CHUNK "{\"index\":0,\"delta\":{\"content\":\" tok\"},\"logprobs\":null,\"finish_reason\":null}]}";
static const char *FINISH = CHUNK "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}]}";

static void emit(Due due) {
    Conn *c = &conns[due.fd];
    if (c->generation != due.generation || !c->busy) return; /* the client has left */
    char out[4096];
    size_t n = 0;
    if (!due.sent)
        n = (size_t)sprintf(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                 "x-ramptrace-unit: r-%ld\r\nTransfer-Encoding: chunked\r\n\r\n", (long)due.number);
    n += event(out + n, TOKEN);
    int last = due.sent + 1 == tokens;
    if (last) {
        char usage[512];
        sprintf(usage, CHUNK "],\"usage\":{\"prompt_tokens\":16,\"total_tokens\":%d,\"completion_tokens\":%d}}", 16 + tokens, tokens);
        n += event(out + n, FINISH);
        n += event(out + n, usage);
        n += event(out + n, "[DONE]");
        n += (size_t)sprintf(out + n, "0\r\n\r\n");
    }
    int64_t now = now_us();
    if (!due.sent) lines[due.number].first = now;
    lines[due.number].last = now;
    if (last) c->busy = 0;
    if (!put(due.fd, out, n)) { hang_up(due.fd); return; }
    if (!last) {
        due.due += itl_us;
        due.sent++;
        push(&laters, due);
    }
}

static void answer(int fd, const char *head, int64_t arrived) {
    Conn *c = &conns[fd];
    if (!strncmp(head, "POST ", 5)) {
        if (requests >= MAX_REQUESTS) { fprintf(stderr, "sse_server: too many requests\n"); exit(1); }
        lines[requests].arrival = arrived;
        c->busy = 1;
        push(&firsts, (Due){.due = arrived + ttft_us, .fd = fd, .generation = c->generation, .number = requests++});
        return;
    }
    const char *body = strstr(head, "/models ") ? "{\"object\":\"list\",\"data\":[{\"id\":\"m\",\"object\":\"model\"}]}" : "{}";
    int known = strstr(head, "/_ramptrace/") == NULL;
    char out[512];
    int n = sprintf(out, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                    known ? "200 OK" : "404 Not Found", strlen(body), body);
    put(fd, out, (size_t)n);
}

static void read_in(int fd) {
    Conn *c = &conns[fd];
    ssize_t n = recv(fd, c->in + c->have, BUFFER - 1 - c->have, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) { hang_up(fd); return; }
    if (n < 0) return;
    int64_t now = now_us();
    c->have += (size_t)n;
    c->in[c->have] = 0;
    for (;;) { /* a request is taken when it is whole */
        char *end = strstr(c->in, "\r\n\r\n");
        if (!end) {
            if (c->have >= BUFFER - 1) hang_up(fd);
            return;
        }
        size_t head = (size_t)(end + 4 - c->in), body = 0;
        for (char *line = c->in; line < end; line = strstr(line, "\r\n") + 2)
            if (!strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
        if (head + body > BUFFER - 1) { hang_up(fd); return; }
        if (c->have < head + body) return;
        *end = 0;
        answer(fd, c->in, now);
        c->have -= head + body;
        memmove(c->in, c->in + head + body, c->have + 1);
    }
}

static void welcome(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        if (fd >= MAX_FDS) { close(fd); continue; }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        conns[fd].in = malloc(BUFFER);
        conns[fd].generation = ++generations;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static int64_t run_due(void) { /* sends what is due; returns the time until the next, -1 for none */
    for (;;) {
        Queue *q = NULL;
        if (firsts.head != firsts.tail) q = &firsts;
        if (laters.head != laters.tail &&
            (!q || laters.items[laters.head % QUEUE].due < q->items[q->head % QUEUE].due)) q = &laters;
        if (!q) return -1;
        Due due = q->items[q->head % QUEUE];
        int64_t left = due.due - now_us();
        if (left > 0) return left;
        q->head++;
        emit(due);
    }
}

int main(int argc, char **argv) {
    if (argc != 5) { fprintf(stderr, "usage: sse_server LOG TTFT_US ITL_US TOKENS\n"); return 2; }
    FILE *log = fopen(argv[1], "w");
    ttft_us = atoll(argv[2]), itl_us = atoll(argv[3]), tokens = atoi(argv[4]);
    lines = calloc(MAX_REQUESTS, sizeof *lines);
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    if (!log || !lines || bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 65535)) { perror("sse_server"); return 1; }
    getsockname(listener, (struct sockaddr *)&at, &length);
    poller = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
    e.data.fd = STDIN_FILENO;
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &e);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    struct epoll_event found[1024];
    for (int over = 0; !over;) {
        int64_t left = run_due();
        struct timespec wait = {left / 1000000, left % 1000000 * 1000};
        int n = epoll_pwait2(poller, found, 1024, left < 0 ? NULL : &wait, NULL);
        for (int i = 0; i < n; i++) {
            int fd = found[i].data.fd;
            if (fd == STDIN_FILENO) over = 1;
            else if (fd == listener) welcome(listener);
            else if (conns[fd].in) {
                if ((found[i].events & EPOLLOUT) && conns[fd].out_bytes && !flush_out(fd)) { hang_up(fd); continue; }
                if (found[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_in(fd);
            }
        }
    }
    for (int64_t i = 0; i < requests; i++)
        fprintf(log, "%ld %ld %ld %ld\n", (long)i, (long)lines[i].arrival, (long)lines[i].first, (long)lines[i].last);
    return fclose(log) != 0;
}
