//! The compiled loops of `susurrus.topics`.

use pyo3::prelude::*;

mod arrow;
mod avro;
mod batch;
mod by_user;
mod bytes;
mod categories;
mod coding;
mod facts;
mod found;
mod framed;
mod json;
mod kept;
mod keys;
mod numbers;
mod protobuf;
mod protobuf_types;
mod results;
mod rows;
mod scanner;
mod slots;
mod table;
mod text;
mod written;

#[pymodule]
fn _compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("BUILT_BY", option_env!("SUSURRUS_BUILT_BY"))?; // setup.py: name and version of the compiler
    module.add_class::<scanner::Scanner>()?;
    module.add_class::<found::Found>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<results::Results>()?;
    module.add_class::<framed::Framed>()?;
    module.add_class::<framed::Program>()?;
    module.add_function(wrap_pyfunction!(avro::avro_program, module)?)?;
    module.add_function(wrap_pyfunction!(json::json_program, module)?)?;
    module.add_function(wrap_pyfunction!(protobuf_types::protobuf_program, module)?)?;
    module.add_function(wrap_pyfunction!(batch::records, module)?)?;
    module.add_function(wrap_pyfunction!(batch::plain_attributes, module)?)?;
    module.add_function(wrap_pyfunction!(by_user::pack_by_user, module)?)?;
    module.add_function(wrap_pyfunction!(categories::placements, module)?)?;
    module.add_function(wrap_pyfunction!(rows::write_rows, module)?)
}
