//! A network that can be cut silently: packets are lost, as behind a cable that is pulled out far away. No connection
//! is reset, and no sender sees an error.
//!
//! A test of it runs once more as a process of its own, in a network namespace of its own: the near side, where the
//! test and its API server are. The far side is for the host. Between the two there are two cables, one that can be
//! cut, and one by which the test looks at the host meanwhile. Neither needs to be root, nor touches the machine's own
//! network.

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

/// Names a file that shows that the test was entered in its namespace; unset outside of it.
const ENTERED: &str = "PODIUM_TESTS_ENTERED";
/// What has to be installed: iproute2 and util-linux.
const PROGRAMS: [(&str, &str); 3] = [("ip", "-V"), ("unshare", "-V"), ("nsenter", "-V")];
/// All that is needed of the kernel, tried in a namespace that ends with it.
const TRIAL: &str = "ip link add trial-near type veth peer name trial-far \
    && ip rule add pref 1 iif trial-near blackhole && unshare -n true";
/// Before the rule that finds the machine's own addresses, which is moved behind it.
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
    /// Where an API server listens that can be cut off from the host.
    pub const NEAR: IpAddr = IpAddr::V4(CUTTABLE.near);
    /// Where the host listens for the test, whatever is cut.
    pub const FAR: IpAddr = IpAddr::V4(STEADY.far);

    /// To be called first by the test of this name. Some: it runs in its namespace and goes on. None: it ran there and
    /// passed, or it is skipped because the kernel refuses namespaces, said loudly on stderr.
    ///
    /// # Errors
    /// When it did not pass; in CI (`CI=true`) also where a program is missing.
    pub async fn enter(test: &str) -> Result<Option<Self>> {
        if let Some(entered) = env::var_os(ENTERED) {
            fs::write(entered, test)?;
            return Self::build().await.map(Some);
        }
        let Some(unshare) = unshare()? else { return Ok(None) };
        // One after the other: they measure times.
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
        // Ends with its standard input, that is with the test.
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
                // Known for good, as of a router: a cut far away does not make one's neighbour vanish.
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

    /// Runs a program on the far side.
    #[must_use]
    pub fn far_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg("--").arg(program);
        command
    }

    /// From now on nothing comes through, in either direction.
    ///
    /// # Errors
    /// When it is cut already.
    pub fn cut(&self) -> Result<()> {
        self.at_both_ends("add")
    }

    /// Things come through again. What was sent meanwhile is lost.
    ///
    /// # Errors
    /// When it is not cut.
    pub fn heal(&self) -> Result<()> {
        self.at_both_ends("del")
    }

    /// Packets are dropped where they come in, so that who sends them sees nothing.
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
                let in_ci = env::var_os("CI").is_some_and(|value| value == "true");
                ensure!(!in_ci, "{program} is missing, and in CI no suite is skipped");
                print_line(&format!("SKIPPED: no `{program}` on the PATH, so there is no network to cut"));
                return Ok(None);
            }
            Err(error) => bail!("{program}: {error}"),
        }
    }
    let mut refusals = Vec::new();
    // As root of a namespace of users, which anybody may be, or of the machine.
    for unshare in [&["unshare", "-rn", "--"][..], &["unshare", "-n", "--"]] {
        let tried = Command::new(unshare[0]).args(&unshare[1..]).args(["sh", "-c", TRIAL]).output()?;
        if tried.status.success() {
            return Ok(Some(unshare));
        }
        refusals.push(format!("{}: {}", unshare.join(" "), String::from_utf8_lossy(&tried.stderr).trim()));
    }
    print_line(&format!("SKIPPED: the kernel gives no network namespaces to cut ({})", refusals.join("; ")));
    Ok(None)
}

/// libtest hides what a passing test prints; this it does not.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "podium-tests: {line}");
}
