//! Texts of a guest in objects that people read with `kubectl`.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{
    attack::{Attack, is_one_line},
    guests,
    in_host::HostRig,
};

fn attack(name: &str) -> Attack {
    guests::attacks().into_iter().find(|attack| attack.name == name).unwrap()
}

/// Commits an attack on a Pod, and returns the objects of a resource.
async fn objects(name: &str, resource: &str) -> Result<Vec<Value>> {
    let rig = HostRig::new().await?;
    rig.create("shop", "cart-0")?;
    let loaded = rig.load(&attack(name)).await?;
    podium_tests::embedded::at_rest(&rig.cluster, &rig.app).await?;
    let (_, objects) = rig.cluster.list(resource);
    drop(loaded);
    rig.app.shutdown().await;
    Ok(objects)
}

#[tokio::test(start_paused = true)]
async fn the_note_of_an_event_is_one_line_without_controls() -> Result<()> {
    for name in ["event-note-with-controls", "event-note-that-grows-when-escaped"] {
        let events = objects(name, "events").await?;
        ensure!(!events.is_empty(), "{name}: no Event");
        for event in events {
            let note = event["note"].as_str().or(event["message"].as_str()).unwrap_or_default();
            ensure!(!note.is_empty(), "{event}");
            is_one_line(note, 1_024)?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_message_of_a_condition_is_one_line_without_controls() -> Result<()> {
    let pods = objects("condition-message-with-controls", "pods").await?;
    let conditions = pods.iter().filter_map(|pod| pod["status"]["conditions"].as_array()).flatten();
    let own: Vec<_> = conditions.filter(|condition| condition["type"] == "guests.example/a").collect();
    ensure!(own.len() == 1, "{own:?}");
    let message = own[0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("FORGED"), "{message}");
    is_one_line(message, 32 << 10)
}
