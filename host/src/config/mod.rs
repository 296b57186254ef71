//! Plugin configuration from files: parsed, checked, with errors that name file and field.
