//! The compiled loops of `susurrus.mechanisms`.

use pyo3::prelude::*;

#[pymodule]
fn _compiled(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
