//! How much memory the machine has to give, and what was not in it.

/// Bytes that programs and the page cache could take now without anything being swapped; 0 where the system does not tell.
pub fn available_memory() -> u64 {
    let Ok(told) = std::fs::read_to_string("/proc/meminfo") else { return 0 };
    let kib = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// How many times this thread has had to wait for a page of a mapping; 0 where the system does not tell.
pub fn waits_for_pages() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes no more than the structure, which is valid with all bytes zero.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_majflt).unwrap_or(0)
}
