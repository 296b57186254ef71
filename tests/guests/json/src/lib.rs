//! A guest of the world plugin-json: logs the texts that it receives, sets one label, tries to delete.

wit_bindgen::generate!({ path: "../../../wit", world: "plugin-json" });

use exports::podium::reconcile::reconciler_json::{Failure, Guest, Outcome, Request, Subject};
use podium::reconcile::{log, pods_json, types::PodQuery, writes};

struct Json;

impl Guest for Json {
    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let say = |text: &str| log::write(log::Level::Info, text, &[]);
        match &request.subject {
            Subject::Present(pod) => say(pod),
            Subject::Deleted(pod) => say(&format!("deleted {pod:?}")),
        }
        // The configuration is the phase to look for, or none.
        let phase = (request.config != "{}").then(|| request.config.trim_matches('"').to_owned());
        let query = PodQuery { namespace: None, node: None, owner_uid: None, phase, labels: Vec::new() };
        say(&pods_json::find(&query, 10, None).map_err(|error| Failure::Retry(format!("{error:?}")))?.pods);
        say(&format!("{:?}", writes::set_label(&request.key, "guests.example/seen", "yes")));
        say(&format!("{:?}", writes::delete_pod(&request.key, None)));
        Ok(Outcome::Settled)
    }
}

export!(Json);
