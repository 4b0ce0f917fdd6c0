//! Settings of the C library's allocator, which Rust uses.
//!
//! By default glibc gives each thread an arena, up to eight for each processor, and memory
//! that was allocated from one returns to it whichever thread frees it. Here event loops
//! allocate what handlers free and the other way round, so that each arena grows to its own
//! peak: under attack the process took 310 MiB where 240 were enough. One arena for all costs a
//! lock when a thread's own cache is empty.

/// Has all threads allocate from one arena. Call it before there are any.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "no safe crate wraps mallopt(3)")]
pub(super) fn use_one_arena() {
    // SAFETY: mallopt takes two integers and no pointers.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns memory that is not in use to the system, as far as whole pages are.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "no safe crate wraps malloc_trim(3)")]
pub(super) fn trim() {
    // SAFETY: malloc_trim takes an integer and no pointer.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Other allocators decide by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn trim() {}

/// Has no arenas to limit.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn use_one_arena() {}
