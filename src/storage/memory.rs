//! How much memory the machine has to give.

/// Bytes that programs and the page cache could take now without anything being swapped; 0 where the system does not tell.
pub fn available_memory() -> u64 {
    let Ok(told) = std::fs::read_to_string("/proc/meminfo") else { return 0 };
    let kib = told
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
