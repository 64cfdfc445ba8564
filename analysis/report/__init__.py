"""Everything that leaves the analysis: results files, terminal summary, HTML report. The only part that writes."""
