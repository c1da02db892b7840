//! The `qassay` command: parse, dispatch, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(qassay::cli::main())
}
