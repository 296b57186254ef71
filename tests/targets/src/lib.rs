//! Empty: the package is its build script.
