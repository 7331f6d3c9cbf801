//! Endless streams of indices.
