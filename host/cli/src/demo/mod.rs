//! `podium demo`: the whole thing at work, checked against the cluster.
