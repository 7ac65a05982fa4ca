//! The compiled loops of `susurrus.topics`.

use pyo3::prelude::*;

mod batch;
mod by_user;
mod categories;
mod json;
mod numbers;
mod scanner;
mod slots;
mod text;

#[pymodule]
fn _compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<scanner::Scanner>()?;
    module.add_function(wrap_pyfunction!(batch::records, module)?)?;
    module.add_function(wrap_pyfunction!(batch::plain_attributes, module)?)?;
    module.add_function(wrap_pyfunction!(by_user::pack_by_user, module)?)
}
