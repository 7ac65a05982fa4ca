//! The compiled loops of `susurrus.mechanisms`.

mod user_table;

use pyo3::prelude::*;

#[pymodule]
fn _compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BUILT_BY", option_env!("SUSURRUS_BUILT_BY"))?; // setup.py: name and version of the compiler
    module.add_class::<user_table::UserTable>()
}
