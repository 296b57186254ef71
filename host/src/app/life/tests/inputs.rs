//! Plugins whose inputs cannot be read when they are loaded.

use podium_vocabulary::{Input, InputObjects};

use super::*;

/// Returns a plugin with this number of inputs, none of which the API server has.
fn with_inputs(number: usize) -> PluginSpec {
    let input = |at: usize| Input {
        id: format!("input-{at}"),
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        resource: "configmaps".into(),
        objects: InputObjects::Named(format!("missing-{at}")),
        fields: vec!["data".into()],
    };
    let impersonate = Some("system:serviceaccount:shop:tidy".into());
    PluginSpec { inputs: (0..number).map(input).collect(), impersonate, ..spec() }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_ran_in_another_process_needs_no_input_to_be_there() {
    for (ran, inputs, is_loaded) in [(false, 1, false), (true, 1, true), (true, 20, true)] {
        let (driver, _observe) = driver().await;
        give(&driver, &spec().id, Idle);
        let object = Object { uid: "u".into(), generation: 3, spec: "{}".into(), held: false, ran };
        let want = Want::Run(Arc::new(with_inputs(inputs)));
        driver.feed(Event::Seen(spec().id, Source::Object(object), want));
        seconds(1).await;
        assert_eq!(states(&driver) == [LoadState::Loaded], is_loaded, "{ran}, {inputs}: {:?}", states(&driver));
    }
}
