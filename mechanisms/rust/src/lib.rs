//! The compiled loops of `susurrus.mechanisms`.

mod user_table;

use pyo3::prelude::*;

#[pymodule]
fn _compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<user_table::UserTable>()
}
