//! The compiled loops of `susurrus.topics`.

use pyo3::prelude::*;

#[pymodule]
fn _compiled(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
