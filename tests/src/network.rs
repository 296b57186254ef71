//! A network that can be cut silently: packets are lost without a reset or an error, as with a broken cable far away.
//!
//! A test with it runs again as a process in its own network namespace: the near side, with the test and its API
//! server. The far side is for the host. Two cables connect them: one that can be cut, and one through which the test
//! observes the host meanwhile. This needs no root, and does not affect the machine's own network.

use std::{
    env, fs,
    io::{ErrorKind, Write},
    net::{IpAddr, Ipv4Addr},
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::{process::Process, wait::until};

/// The variable with the path of a file that shows that the test was entered in its namespace; unset outside of it.
const ENTERED: &str = "PODIUM_TESTS_ENTERED";
/// The required programs: iproute2 and util-linux.
const PROGRAMS: [(&str, &str); 3] = [("ip", "-V"), ("unshare", "-V"), ("nsenter", "-V")];
/// Checks the required features of the kernel, in a namespace that ends with the check.
const TRIAL: &str = "ip link add trial-near type veth peer name trial-far \
    && ip rule add pref 1 iif trial-near blackhole && unshare -n true";
/// The preference before the rule of the machine's own addresses, which is moved after it.
const CUT_PREFERENCE: &str = "1";
const LOCAL_PREFERENCE: &str = "10";
const NEAR_HARDWARE: &str = "02:00:00:00:00:01";
const FAR_HARDWARE: &str = "02:00:00:00:00:02";

/// The two sides and the cables between them.
#[derive(Debug)]
pub struct Network {
    /// The far namespace lives as long as a process in it.
    holder: Process,
    _directory: TempDir,
}

/// A pair of interfaces.
struct Cable {
    near_end: &'static str,
    far_end: &'static str,
    near: Ipv4Addr,
    far: Ipv4Addr,
}

const CUTTABLE: Cable = Cable {
    near_end: "cut-near",
    far_end: "cut-far",
    near: Ipv4Addr::new(10, 77, 0, 1),
    far: Ipv4Addr::new(10, 77, 0, 2),
};
const STEADY: Cable = Cable {
    near_end: "ops-near",
    far_end: "ops-far",
    near: Ipv4Addr::new(10, 77, 1, 1),
    far: Ipv4Addr::new(10, 77, 1, 2),
};

impl Network {
    /// The address of an API server that can be cut off from the host.
    pub const NEAR: IpAddr = IpAddr::V4(CUTTABLE.near);
    /// The address of the host for the test, which is never cut.
    pub const FAR: IpAddr = IpAddr::V4(STEADY.far);

    /// Must be called first by the test of this name. With `Some` the test runs in its namespace and continues.
    /// `None` means that it ran there and passed, or that it is skipped because the kernel refuses namespaces, which
    /// is reported on stderr.
    ///
    /// # Errors
    /// Returns an error if it did not pass; in CI (`CI=true`) even if a program is missing.
    pub async fn enter(test: &str) -> Result<Option<Self>> {
        if let Some(entered) = env::var_os(ENTERED) {
            fs::write(entered, test)?;
            return Self::build().await.map(Some);
        }
        let Some(unshare) = unshare()? else { return Ok(None) };
        // One after the other, because they measure times.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir()?;
        let entered = directory.path().join("entered");
        let mut command = Command::new(unshare[0]);
        command.args(&unshare[1..]).arg(env::current_exe()?).args([
            "--exact",
            test,
            "--nocapture",
            "--include-ignored",
        ]);
        let status = command.env(ENTERED, &entered).status()?;
        ensure!(status.success(), "{test} in its network namespace: {status}");
        ensure!(fs::read_to_string(entered).is_ok_and(|entered| entered == test), "no test is called {test}");
        Ok(None)
    }

    async fn build() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        // Ends with its standard input, that is, with the test.
        command.args(["-n", "sh", "-c", "echo ready; exec cat"]);
        let holder = Process::spawn("the far side", &mut command, directory.path().join("far.log"))?;
        let network = Self { holder, _directory: directory };
        until("the far side", Duration::from_secs(10), async || {
            ensure!(network.holder.log().contains("ready"), "{}", network.holder.log());
            Ok(())
        })
        .await?;
        let far_side = network.holder.id().to_string();
        for Cable { near_end, far_end, near, far } in [CUTTABLE, STEADY] {
            let peer = format!("type veth peer name {far_end} address {FAR_HARDWARE} netns {far_side}");
            ip(network.side(false), &format!("link add {near_end} address {NEAR_HARDWARE} {peer}"))?;
            let sides = [(false, near_end, near, far, FAR_HARDWARE), (true, far_end, far, near, NEAR_HARDWARE)];
            for (side, end, own, other, hardware) in sides {
                ip(network.side(side), &format!("addr add {own}/30 dev {end}"))?;
                ip(network.side(side), &format!("link set {end} up"))?;
                // A permanent entry, as for a router: a cut far away does not remove the neighbour.
                ip(network.side(side), &format!("neigh replace {other} lladdr {hardware} dev {end} nud permanent"))?;
            }
        }
        for side in [false, true] {
            ip(network.side(side), "link set lo up")?;
            ip(network.side(side), &format!("rule add pref {LOCAL_PREFERENCE} lookup local"))?;
            ip(network.side(side), "rule del pref 0")?;
        }
        Ok(network)
    }

    /// Returns the command of a program on the far side.
    #[must_use]
    pub fn far_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command
    }

    /// Cuts the cable: from now on no packets pass, in either direction.
    ///
    /// # Errors
    /// Returns an error if it is already cut.
    pub fn cut(&self) -> Result<()> {
        self.at_both_ends("add")
    }

    /// Restores the cable. Packets that were sent meanwhile are lost.
    ///
    /// # Errors
    /// Returns an error if it is not cut.
    pub fn heal(&self) -> Result<()> {
        self.at_both_ends("del")
    }

    /// Runs a command on both ends. Packets are dropped on arrival, so that the sender sees no error.
    fn at_both_ends(&self, what: &str) -> Result<()> {
        for (far, end) in [(true, CUTTABLE.far_end), (false, CUTTABLE.near_end)] {
            ip(self.side(far), &format!("rule {what} pref {CUT_PREFERENCE} iif {end} blackhole"))?;
        }
        Ok(())
    }

    fn side(&self, far: bool) -> Command {
        if far { self.far_command("ip") } else { Command::new("ip") }
    }
}

fn ip(mut command: Command, arguments: &str) -> Result<()> {
    let output = command.args(arguments.split(' ')).output().context("start ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {arguments}: {}", said.trim());
    Ok(())
}

/// Returns the command prefix that starts a program in its own namespaces, or `None` if the machine does not permit it.
fn unshare() -> Result<Option<&'static [&'static str]>> {
    for (program, argument) in PROGRAMS {
        match Command::new(program).arg(argument).output() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let in_ci = crate::process::in_ci();
                ensure!(!in_ci, "{program} is missing, and in CI no suite is skipped");
                print_line(&format!("SKIPPED: no `{program}` on the PATH, so there is no network to cut"));
                return Ok(None);
            }
            Err(error) => bail!("{program}: {error}"),
        }
    }
    let mut refusals = Vec::new();
    // As root of a user namespace, which every user may create, or of the machine.
    for unshare in [&["unshare", "-rn", "--"][..], &["unshare", "-n", "--"]] {
        let tried = Command::new(unshare[0]).args(&unshare[1..]).args(["sh", "-c", TRIAL]).output()?;
        if tried.status.success() {
            return Ok(Some(unshare));
        }
        refusals.push(format!("{}: {}", unshare.join(" "), String::from_utf8_lossy(&tried.stderr).trim()));
    }
    print_line(&format!("SKIPPED: no network namespace can be created ({})", refusals.join("; ")));
    Ok(None)
}

/// Prints to stderr directly, because libtest hides the output of a passing test.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "podium-tests: {line}");
}
