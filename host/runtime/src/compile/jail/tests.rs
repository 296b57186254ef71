//! Attempts of a process in the jail to do what the jail forbids. They are made in their own process: this test's
//! program, started again.

use std::{env, fs, io, net, process::Command, thread};

use super::*;

/// Set for the process that locks itself in.
const INSIDE: &str = "PODIUM_TEST_JAIL";

fn run_inside(test: &str) -> std::process::Output {
    let name = format!("compile::jail::tests::{test}");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &name, "--ignored", "--nocapture", "--test-threads=1"]).env(INSIDE, "1").output().unwrap()
}

fn enter_with(memory_bytes: u64) {
    enter(Bounds { cpu: Duration::from_secs(2), memory_bytes, data_bytes: None }).unwrap();
}

#[test]
fn a_jailed_process_reaches_no_file_network_or_process() {
    let output = run_inside("attempts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "locks its process in: the test above starts it in one of its own"]
fn attempts() {
    if env::var_os(INSIDE).is_none() {
        return;
    }
    enter_with(1 << 30);
    let refused = |what: &str, result: io::Result<()>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM), "{what}");
    };
    refused("a file", fs::read("/proc/self/maps").map(drop));
    refused("a new file", fs::write("/tmp/podium-jail", "x"));
    refused("a folder", fs::read_dir("/").map(drop));
    refused("a file's name", fs::remove_file("/tmp/podium-jail"));
    refused("a connection", net::TcpStream::connect(("127.0.0.1", 80)).map(drop));
    refused("a server", net::UdpSocket::bind(("127.0.0.1", 0)).map(drop));
    refused("a program", Command::new("/bin/true").spawn().map(drop));
    refused("a thread", thread::Builder::new().spawn(|| ()).map(drop));
    system_calls::attempt();
    // Together with the memory that the process has, more than the limit.
    assert!(Vec::<u8>::new().try_reserve_exact(1 << 30).is_err());
    assert!(Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok());
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[expect(unsafe_code, reason = "the calls that no library makes")]
mod system_calls {
    use std::{io, process};

    const PROT: i64 = (libc::PROT_READ | libc::PROT_EXEC) as i64;
    const ANONYMOUS: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;

    pub(super) fn attempt() {
        let pid = i64::from(process::id());
        let parent = i64::from(rustix::process::Pid::as_raw(rustix::process::getppid()));
        let abort = i64::from(libc::SIGABRT);
        for (what, call, arguments) in [
            ("clone", libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0]),
            ("clone3", libc::SYS_clone3, [0; 4]),
            ("execve", libc::SYS_execve, [0; 4]),
            ("socketpair", libc::SYS_socketpair, [1, 1, 0, 0]),
            ("kill of the parent", libc::SYS_kill, [parent, 0, 0, 0]),
            ("abort of another process", libc::SYS_tgkill, [parent, parent, abort, 0]),
            ("another signal to itself", libc::SYS_tgkill, [pid, pid, i64::from(libc::SIGSTOP), 0]),
            ("ptrace", libc::SYS_ptrace, [0; 4]),
            ("memory of the parent", libc::SYS_process_vm_readv, [parent, 0, 0, 0]),
            ("io_uring", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
            ("a file in memory", libc::SYS_memfd_create, [0; 4]),
            ("another descriptor", libc::SYS_read, [3, 0, 0, 0]),
            ("writing to stdin", libc::SYS_write, [0, 0, 0, 0]),
            ("higher limits", libc::SYS_prlimit64, [0, 9, 0, 0]),
            ("executable memory", libc::SYS_mmap, [0, 4_096, PROT, ANONYMOUS]),
            ("a file's memory", libc::SYS_mmap, [0, 4_096, 1, i64::from(libc::MAP_PRIVATE)]),
            ("memory made executable", libc::SYS_mprotect, [0, 0, PROT, 0]),
            ("prctl", libc::SYS_prctl, [0; 4]),
        ] {
            // SAFETY: each call is refused before it does anything. If it is not, it is one on null or on nothing.
            let result = unsafe { libc::syscall(call, arguments[0], arguments[1], arguments[2], arguments[3], -1, 0) };
            let error = io::Error::last_os_error();
            assert_eq!((result, error.raw_os_error()), (-1, Some(libc::EPERM)), "{what}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_over_its_processor_time_ends_by_its_signal() {
    use std::os::unix::process::ExitStatusExt;

    let output = run_inside("spins");
    assert_eq!(output.status.signal(), Some(libc::SIGXCPU), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "locks its process in: the test above starts it in one of its own"]
fn spins() {
    if env::var_os(INSIDE).is_none() {
        return;
    }
    enter_with(1 << 30);
    loop {
        std::hint::spin_loop();
    }
}
