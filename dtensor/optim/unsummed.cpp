#include "dtensor/optim/unsummed.h"

#include <iostream>

#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/marks.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/replicas.h"
#include "dtensor/step_graph.h"

namespace coshard {
namespace {

// A parameter with a gradient.
struct Summand {
  Tensor parameter;
  std::size_t number = 0;
  std::uint64_t owed = 0;      // along which its gradient varies
  std::uint64_t compared = 0;  // and where else it should be equal

  Tensor gradient() const { return parameter.grad(); }
};

std::vector<Summand> to_compare(const std::vector<Tensor>& parameters, bool all) {
  std::uint64_t beside = 0;
  for (const Tensor& p : parameters)
    if (all && p.is_distributed()) beside |= p.spec()->mesh_marks;
  std::vector<Summand> found;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Summand one{parameters[i], i};
    if (const Tensor g = one.gradient(); g.defined()) {
      const std::uint64_t own = one.parameter.marks();
      one.owed = g.marks() & ~own;
      if (!all) one.owed &= ~one.parameter.grad_meta()->compared_along;
      if (!one.parameter.is_distributed()) one.compared = beside & ~own & ~g.marks();
    }
    found.push_back(std::move(one));
  }
  return found;
}

// Two hashes for each, 0 where there is nothing to compare: of this rank.
std::vector<std::uint64_t> hashes_of(const std::vector<Summand>& all, std::uint64_t mark) {
  std::vector<std::uint64_t> hashes;
  for (const Summand& one : all) {
    const bool here = ((one.owed | one.compared) & mark) != 0;
    hashes.push_back(here ? bits_hash(one.parameter) | 1 : 0);
    hashes.push_back(here ? bits_hash(one.gradient()) : 0);
  }
  return hashes;
}

Tensor gathered_from(Communicator& communicator, const std::vector<std::uint64_t>& mine,
                     const std::shared_ptr<Device>& device) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const Tensor sent = Tensor::empty(device, Shape{count}, DType::I64);
  device->upload(sent.data(), mine.data(), mine.size() * sizeof mine[0]);
  const Tensor all = Tensor::empty(device, Shape{count * communicator.size()}, DType::I64);
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = all.numel();
  c.label = "replicas";
  c.unobserved = true;
  issue_into(communicator, c, sent, all);
  return all;
}

std::string place_text(const GradMeta& meta) {
  std::string text;
  if (!meta.varies_since.empty()) text = str_cat(" by ", meta.varies_since);
  if (!meta.varies_in.empty()) text += str_cat(" in '", meta.varies_in, "'");
  return text;
}

[[noreturn]] void fail_unsummed(std::string_view who, const Summand& one, std::uint64_t mark) {
  const std::string dim = names_of(mark);
  const std::string what =
      str_cat(who, ": ", name_of_parameter(one.parameter, one.number), " is equal on the ",
              communicator_of(mark).size(), " ranks along ", dim, ", but its gradient is not");
  if ((one.owed & mark) == 0)
    fail(ErrorKind::BadInput,
         str_cat(what,
                 "; its ranks read other data, drew other random numbers, or hold a term "
                 "each: all_reduce_gradients sums terms, and varies(parameter, mesh, dim) "
                 "says that each rank trains its own"));
  fail(
      ErrorKind::BadInput,
      str_cat(what, ", since it was used", place_text(*one.parameter.grad_meta()),
              " with shards or terms of that dimension, and nothing has summed it; give its module "
              "a style that makes it a DTensor (SequenceParallel, NoParallel), call "
              "all_reduce_gradients(parameters, mesh, dim) after backward, or "
              "varies(parameter, mesh, dim) if each rank trains its own"));
}

// Each rank has its own: known from now on.
void keep_own(const Summand& one, std::uint64_t mark) {
  add_marks(one.parameter, mark);
  if (communicator_of(mark).rank() != 0) return;
  std::cerr << str_cat("warning: ", name_of_parameter(one.parameter, one.number),
                       " differs between the ranks along ", names_of(mark),
                       ", and so does its gradient, which nothing sums: each rank trains its own; "
                       "varies(parameter, mesh, dim) says so, without this warning\n");
}

void compare_along(std::string_view who, const std::vector<Summand>& all, std::uint64_t mark,
                   const std::vector<std::uint64_t>& hashes) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Summand& one = all[i];
    if (((one.owed | one.compared) & mark) == 0) continue;
    bool same_value = true, same_gradient = true;
    std::size_t first = hashes.size();
    for (std::size_t at = 2 * i; at < hashes.size(); at += 2 * all.size()) {
      if (hashes[at] == 0) continue;  // that rank has no gradient
      if (first == hashes.size()) first = at;
      same_value = same_value && hashes[at] == hashes[first];
      same_gradient = same_gradient && hashes[at + 1] == hashes[first + 1];
    }
    if (same_value && !same_gradient) fail_unsummed(who, one, mark);
    if (!same_value && (one.owed & mark) != 0) keep_own(one, mark);
    one.parameter.grad_meta()->compared_along |= mark;
  }
}

}  // namespace

Task<void> require_summed(std::vector<Tensor> parameters, std::string_view who, bool all) {
  const std::vector<Summand> listed = to_compare(parameters, all);
  std::uint64_t rest = 0, owed = 0;
  for (const Summand& one : listed) {
    rest |= one.owed | one.compared;
    owed |= one.owed & ~one.parameter.grad_meta()->compared_along;
  }
  if (rest == 0) co_return;
  if (StepGraph::recording() != nullptr) {
    CS_REQUIRE(owed == 0, who, ": a gradient that differs by rank along ", names_of(owed),
               " has not been compared yet; run the step once before it is captured");
    co_return;
  }
  std::vector<Tensor> landing;
  for (const Summand& one : listed)
    if ((one.owed | one.compared) != 0) landing.push_back(one.gradient());
  Task<void> landed = arrival_of(std::move(landing));
  co_await std::move(landed);
  const std::shared_ptr<Device> device = parameters.front().device();
  for (; rest != 0; rest &= rest - 1) {
    const std::uint64_t mark = rest & -rest;
    const Tensor gathered = gathered_from(communicator_of(mark), hashes_of(listed, mark), device);
    Task<void> arrived = arrival_of(std::vector<Tensor>(1, gathered));
    co_await std::move(arrived);
    std::vector<std::uint64_t> hashes(static_cast<std::size_t>(gathered.numel()));
    device->download(hashes.data(), gathered.data(), hashes.size() * sizeof hashes[0]);
    compare_along(who, listed, mark, hashes);
  }
}

}  // namespace coshard
