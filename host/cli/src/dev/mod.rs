//! `podium dev`: a cluster in the process, the host, and plugins that are swapped when their source changes.
