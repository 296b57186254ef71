//! The `podium-host` binary, which runs in the cluster. See [`podium_host::app::process`].

fn main() -> std::process::ExitCode {
    podium_host::app::process::main()
}
