#pragma once
// An oracle for plan_steps: tells from explicit sets of positions which steps are legal and what
// they cost, and finds the cheapest plan among all. It shares no code with the planner.
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <coshard/runtime/cost/link.h>
#include "tests/dtensor/redistribute/step_oracle.h"

namespace coshard::oracle {

struct Plan {
  double time = 0;  // infinity: there is none
  int collectives = 0;
  std::vector<Layout> layouts;
};
std::ostream& operator<<(std::ostream& out, const Plan& plan);

// Of one mesh, tensor and width: bytes per element. Mesh dimensions of one rank take no part: its
// own plans lack them.
class PlanOracle {
 public:
  PlanOracle(const std::vector<int>& mesh, const Shape& shape, int width);

  // Of the cheapest plans, one with the fewest collectives.
  Plan cheapest(const Layout& from, const Layout& to, std::span<const Link> links);
  // Error{BadInput}: a step that is not legal.
  Plan priced(const std::vector<Layout>& layouts, std::span<const Link> links);
  // "" if `steps` are as good a plan as `cheapest`. Otherwise what is wrong, and both plans.
  std::string fault(const std::vector<PlanStep>& steps, const Layout& from, const Layout& to,
                    std::span<const Link> links);
  // The plan's layouts with mesh dimensions of one rank left out.
  Layout inner(const Layout& layout) const;
  // How many layouts a plan may pass through.
  std::size_t count_nodes(const Layout& from, const Layout& to);

 private:
  using Links = std::vector<Link>;

  Links inner(std::span<const Link> links) const;
  MeshDims inner(MeshDims dims) const;
  std::vector<int> nodes_between(const Layout& from, const Layout& to);
  double price(const Step& step, const Links& links) const;
  std::string fault_of(const PlanStep& given, const std::vector<int>& nodes, const Links& links);
  std::string sequence_fault(const std::vector<PlanStep>& steps, const Layout& from,
                             const Layout& to, const Links& links);

  std::vector<int> kept_dims_;  // the mesh dimensions of several ranks
  StepOracle steps_;
  int width_;
};

}  // namespace coshard::oracle
