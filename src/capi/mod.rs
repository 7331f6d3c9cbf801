//! The C interface: what the bindings of loaderx 0.5.0 load, with its names, signatures and codes.
