//! Real programs work under callgate as they do bare (`tests/compat.toml`; the whole table: the `compat` binary).

use callgate_tests::projects::projects;
use callgate_tests::{Host, User, matrix, skip};

/// The quick ones of the table. The others take packages that the suite does not install.
#[test]
fn real_programs_do_what_they_do_bare() {
    let quick: Vec<_> = projects().into_iter().filter(|project| project.quick).collect();
    assert!(quick.len() >= 10, "the table has quick ones");
    matrix(Host::STRENGTHS, |target| {
        for project in &quick {
            let met = project.meet(target);
            if let Some(why) = met.not_tried() {
                // An ordinary user may not reach what root has installed for itself.
                let name = if target.user == User::Root { "project" } else { "toolchain-of-root" };
                skip(name, format_args!("{target:?}: {}: {why}", project.name));
            }
            assert!(met.is_as_said_of(project), "{}: {met}", project.name);
        }
    });
}
