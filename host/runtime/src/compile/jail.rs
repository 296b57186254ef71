//! The limits of the compiler's process: processor time, memory, no files, no network, no processes, no new executable
//! code. They hold from before the first byte of input until the end of the process, and cannot be removed.
//!
//! A system call that is not listed fails with `EPERM` instead of ending the process: a newer C library that tries
//! another call first falls back to one that is listed.

#![expect(clippy::disallowed_methods, reason = "the compiler's own process, which may send a signal only to itself")]

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that the process may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Processor time of all threads, in whole seconds. The kernel sends SIGXCPU after it.
    pub(super) cpu: Duration,
    /// Address space in bytes, the program itself included.
    pub(super) memory_bytes: u64,
    /// Writable memory in bytes, where the process may have less of it than address space, most of which is never used.
    pub(super) data_bytes: Option<u64>,
}

/// Locks the process in, with all of its threads. No thread can be started afterwards.
///
/// # Errors
/// The kernel refused one of the limits; the process must end.
pub(super) fn enter(bounds: Bounds) -> Result<(), String> {
    let seconds = bounds.cpu.as_secs();
    // A program can ignore SIGXCPU, but not the SIGKILL one second later.
    limit(Resource::Cpu, seconds, seconds.saturating_add(1))?;
    limit(Resource::As, bounds.memory_bytes, bounds.memory_bytes)?;
    if let Some(bytes) = bounds.data_bytes {
        limit(Resource::Data, bytes, bytes)?;
    }
    // Open descriptors stay open; no further one can be opened.
    for resource in [Resource::Nofile, Resource::Fsize, Resource::Core, Resource::Nproc] {
        limit(resource, 0, 0)?;
    }
    filter::install()
}

/// Sets a limit, or keeps a lower one that the host's own process has.
fn limit(resource: Resource, soft: u64, hard: u64) -> Result<(), String> {
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
    setrlimit(resource, limit).map_err(|error| format!("setrlimit {resource:?}: {error}"))
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filter {
    use std::{collections::BTreeMap, env::consts::ARCH, process};

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch, apply_filter_all_threads,
    };

    /// System calls that are allowed with any arguments: memory, locks, the clock, handlers of signals, the end.
    const ALLOWED: &[i64] = &[
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
    ];

    pub(super) fn install() -> Result<(), String> {
        let program = program().map_err(|error| format!("seccomp filter: {error}"))?;
        // It sets PR_SET_NO_NEW_PRIVS too.
        apply_filter_all_threads(&program).map_err(|error| format!("seccomp: {error}"))
    }

    fn program() -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
        rules.insert(libc::SYS_read, vec![rule([argument(0, SeccompCmpOp::Eq, 0)?])?]);
        let write = |descriptor| rule([argument(0, SeccompCmpOp::Eq, descriptor)?]);
        rules.insert(libc::SYS_write, vec![write(1)?, write(2)?]);
        // Only anonymous memory, which is not executable.
        let anonymous = bits(libc::MAP_ANONYMOUS);
        let is_data = || argument(2, SeccompCmpOp::MaskedEq(bits(libc::PROT_EXEC)), 0);
        let mmap = rule([is_data()?, argument(3, SeccompCmpOp::MaskedEq(anonymous), anonymous)?])?;
        rules.insert(libc::SYS_mmap, vec![mmap]);
        rules.insert(libc::SYS_mprotect, vec![rule([is_data()?])?]);
        // As `abort` does.
        let itself = argument(0, SeccompCmpOp::Eq, process::id().into())?;
        let abort = argument(2, SeccompCmpOp::Eq, bits(libc::SIGABRT))?;
        rules.insert(libc::SYS_tgkill, vec![rule([itself, abort])?]);
        let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        SeccompFilter::new(rules, refuse, SeccompAction::Allow, TargetArch::try_from(ARCH)?)?.try_into()
    }

    fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::BackendError> {
        SeccompRule::new(conditions.into())
    }

    fn argument(at: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
        SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value)
    }

    /// The kernel's flags and signal numbers are small and positive.
    fn bits(flags: i32) -> u64 {
        flags.unsigned_abs().into()
    }
}

/// No filter of system calls is known for this system; the limits above hold.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod filter {
    pub(super) fn install() -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
