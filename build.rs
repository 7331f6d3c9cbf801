//! How libzrfs.so is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // It has threads, a fork handler and a signal handler by the time that somebody unloads it: it stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Programs that link it look for it by this name, wherever it lay then.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzrfs.so");
}
