//! Endless batches of aligned streams, gathered ahead of who takes them.
