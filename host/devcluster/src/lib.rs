//! A Kubernetes API server in the process, for development, demonstrations and tests: complete enough for kubectl,
//! kube clients and the Podium host. Its state is in memory only, and the same seed leads to the same state.
//!
//! It is a tool and not a cluster: nothing is encrypted, every client is the administrator (unless it impersonates a
//! user), and no container runs. A small scheduler and kubelet simulate the life of Pods, controlled by the
//! annotation [`BEHAVIOUR`], and the controllers of `podium-workloads` create the Pods of Deployments, StatefulSets and
//! Jobs.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use podium_devcluster::{Cluster, Options};
//!
//! let cluster = Cluster::start(Options { seed: 1, nodes: 2, ..Options::default() })?;
//! // In the process: `kube::Client::new(cluster.service(), "default")`. For kubectl:
//! let server = cluster.listen("127.0.0.1:0".parse()?).await?;
//! println!("{}", server.kubeconfig());
//! server.stop().await;
//! assert!(cluster.requests().writes().is_empty());
//! cluster.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod clock;
mod cluster;
mod core;
mod delete;
mod discovery;
mod failure;
mod faults;
mod fields;
mod gc;
mod handle;
mod kinds;
mod managed;
mod meta;
mod openapi;
mod options;
mod patch;
mod patches;
mod pods;
mod present;
mod protobuf;
mod rbac;
mod read;
mod request;
mod requests;
mod review;
mod rules;
mod scale;
mod selector;
mod serve;
mod service;
mod sim;
mod state;
mod store;
mod table;
mod types;
mod validation;
mod watch;
mod write;
mod yaml;

pub use cluster::{Cluster, Options, StartError};
pub use faults::{Faults, Garble, Refusal, Requests, Saved};
pub use request::Verb;
pub use requests::{Logged, RequestLog};
pub use serve::Server;
pub use service::Api;
pub use sim::{BEHAVIOUR, Pace, Simulation};
