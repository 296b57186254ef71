//! Plugins and misbehaving guests as components, built once per run into a target directory of their own.
