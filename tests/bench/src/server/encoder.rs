//! Encodes Pods as protobuf with a program that has Kubernetes' own types: its input is JSON lines, its output frames
//! with a length of four bytes, big endian.

use std::{
    io::{BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
};

use anyhow::Context;

pub(super) struct Encoder {
    /// Ends when its input ends.
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Encoder {
    pub(super) fn start(program: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg("encode")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}; build it in tests/bench/go", program.display()))?;
        let input = child.stdin.take().context("the encoder has no input")?;
        let output = BufReader::with_capacity(1 << 20, child.stdout.take().context("the encoder has no output")?);
        Ok(Self { _child: child, input, output })
    }

    pub(super) fn encode(&mut self, objects: &[Arc<[u8]>]) -> anyhow::Result<Vec<Arc<[u8]>>> {
        let (input, output) = (&mut self.input, &mut self.output);
        thread::scope(|scope| {
            // Written on another thread, because otherwise both pipes could fill up.
            let writing = scope.spawn(move || {
                for object in objects {
                    input.write_all(object)?;
                    input.write_all(b"\n")?;
                }
                input.flush()
            });
            let mut encoded = Vec::with_capacity(objects.len());
            for _ in objects {
                let mut length = [0; 4];
                output.read_exact(&mut length).context("the encoder ended early")?;
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                output.read_exact(&mut frame)?;
                encoded.push(Arc::from(frame));
            }
            match writing.join() {
                Ok(written) => written?,
                Err(_) => anyhow::bail!("writing to the encoder panicked"),
            }
            Ok(encoded)
        })
    }
}
