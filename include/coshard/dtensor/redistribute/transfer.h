#pragma once
// Redistribute between two meshes of one world.
#include <coshard/dtensor/redistribute/redistribute.h>

#pragma GCC visibility push(default)
namespace coshard {

// The same logical tensor on `mesh`, which may share all, some or none of the source's ranks.
// Called by every rank of either mesh; a rank outside the source's mesh passes its empty tensor, a
// rank outside `mesh` gets one. On the source's own mesh: the ordinary redistribute.
//   Moves:    the reduction of the source's Partials on its own mesh; then one all_to_all over the
//             ranks of both meshes, which sends each rank exactly what it lacks, from one replica
//             each.
//   Gradient: sent back the same way.
//   Fails:    Error{BadInput}: a plain tensor; a mesh of another world; a layout that does not fit
//             the mesh or the tensor; a Partial target.
Redistribution redistribute(const DTensor& source, const DeviceMesh& mesh, const Layout& target,
                            CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
