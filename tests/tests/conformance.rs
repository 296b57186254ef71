//! x
use podium_tests::controlplane::{ControlPlane, Options};
#[tokio::test]
async fn starts() {
    let t = std::time::Instant::now();
    let plane = ControlPlane::start(Options { nodes: 20 }).await.unwrap().unwrap();
    eprintln!("{:?} {:?}", t.elapsed(), plane.kubeconfig_path());
    let k = plane.kubectl_path();
    let out = std::process::Command::new(k)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig_path())
        .args(["get", "nodes", "-o", "wide"])
        .output()
        .unwrap();
    eprintln!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let a = plane.audit();
    eprintln!("{:?}", a.writes_of("admin", Default::default()).unwrap().len());
}
