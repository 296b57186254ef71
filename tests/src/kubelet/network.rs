//! The network of a Pod: a namespace with nothing but a loopback interface, on which the API server and the registry
//! have the ports that they have on the machine.

use std::{
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::process::Process;

const SOON: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct PodNetwork {
    /// The namespace lives as long as a process in it.
    holder: Process,
    relays: Vec<JoinHandle<()>>,
    _directory: TempDir,
}

impl PodNetwork {
    /// Creates the network, in which these ports of 127.0.0.1 are those of the machine.
    pub(super) async fn new(ports: &[u16]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new("unshare");
        // Ends with its standard input, that is, with the test.
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let mut holder = Process::spawn("the Pod's network", &mut command, directory.path().join("log"))?;
        // Not `until`, whose future cannot be sent to another thread.
        let deadline = Instant::now() + SOON;
        while !holder.log().contains("ready") {
            holder.check_running()?;
            ensure!(Instant::now() < deadline, "waited for the Pod's network: {}", holder.log());
            sleep(PAUSE).await;
        }
        let mut relays = Vec::new();
        for port in ports {
            relays.push(relay(holder.id(), (Ipv4Addr::LOCALHOST, *port).into()).await?);
        }
        Ok(Self { holder, relays, _directory: directory })
    }

    /// Returns the path of the namespace.
    pub(super) fn path(&self) -> String {
        path(self.holder.id())
    }

    /// Returns the response body of a GET in this network.
    pub(super) async fn get(&self, port: u16, path: &str) -> Result<String> {
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let response = inside(self.holder.id(), move || {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut stream = TcpStream::connect_timeout(&address, SOON)?;
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(request.as_bytes())?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response)
        })
        .await?;
        let (head, body) = response.split_once("\r\n\r\n").context("no HTTP response")?;
        ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{response}");
        Ok(body.to_owned())
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        self.relays.iter().for_each(JoinHandle::abort);
    }
}

/// Passes connections to an address in the network of a process on to the same address of the machine.
async fn relay(pid: u32, address: SocketAddr) -> Result<JoinHandle<()>> {
    let listener = inside(pid, move || Ok(TcpListener::bind(address)?)).await?;
    listener.set_nonblocking(true)?;
    let listener = net::TcpListener::from_std(listener)?;
    Ok(tokio::spawn(async move {
        while let Ok((mut inner, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut outer) = net::TcpStream::connect(address).await {
                    // An error is the end of the connection, which both sides see.
                    let _ = copy_bidirectional(&mut inner, &mut outer).await;
                }
            });
        }
    }))
}

fn path(pid: u32) -> String {
    format!("/proc/{pid}/ns/net")
}

/// Runs a function on a thread of its own, which is in the network of a process: sockets stay in the network in which
/// they were created.
async fn inside<T: Send + 'static>(pid: u32, run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let thread = thread::spawn(move || {
        let namespace = File::open(path(pid))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        run()
    });
    tokio::task::spawn_blocking(move || thread.join()).await?.map_err(|_| anyhow!("the thread panicked"))?
}
