#pragma once
// Redistribute between two meshes of one world.
#include <coshard/dtensor/redistribute/redistribute.h>

namespace coshard {

// The same logical tensor on `mesh`, which may share ranks with the source's or have none of them.
// Every rank of either mesh calls it; a rank outside the source's mesh gives its empty tensor, one
// outside `mesh` gets one. Collectives: the reduction of the source's Partials on its own mesh,
// then one all_to_all over the ranks of both, in which every rank gets exactly what it lacks, from
// one replica each. Differentiable: the gradient goes back the same way. On the source's own mesh:
// the ordinary redistribute. Error{BadInput}: a plain tensor, a mesh of another world, entries that
// do not match the mesh or the tensor, a Partial target.
Redistribution redistribute(const DTensor& source, const DeviceMesh& mesh, const Layout& target,
                            CallSite site = CallSite::current());

}  // namespace coshard
