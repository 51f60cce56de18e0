#include <coshard/dtensor/capture/capture.h>

#include <utility>

#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/capture/step_graph.h"
#include "runtime/coro/user_call.h"

namespace coshard {

struct CapturedStep::State {
  StepBody body;
  int eager_left = 0;
  bool running = false;
  std::unique_ptr<StepGraph> graph;  // null: not recorded yet
};

namespace {

// Rejects a call of a step that is still running.
class Running {
 public:
  explicit Running(bool& flag) : flag_(flag) {
    CS_REQUIRE(!flag, "captured step: called while an earlier call is still running");
    flag = true;
  }
  ~Running() { flag_ = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  bool& flag_;
};

Tensor own_copy(const Tensor& tensor) { return tensor.defined() ? copy_of(tensor) : tensor; }

}  // namespace

// Fails in a child of a when_all, where the work of siblings would be recorded too.
Task<Tensor> CapturedStep::record(std::shared_ptr<State> state, std::vector<Tensor> inputs) {
  const std::shared_ptr<Device>& device = World::current()->device();
  if (!Branch::current().is_main())
    fail(ErrorKind::Unsupported,
         str_cat("captured step: recorded in branch ", Branch::current().path(),
                 ", where it would record the work of siblings too; make the "
                 "first call outside when_all"));
  Task<void> arrived = arrival_of(inputs);
  co_await std::move(arrived);
  auto graph = std::make_unique<StepGraph>(device, inputs);
  Task<Tensor> step = state->body(graph->inputs());
  Tensor result = co_await std::move(step);
  graph->finish(result);
  graph->launch();
  state->graph = std::move(graph);
  co_return own_copy(state->graph->result());
}

Task<Tensor> CapturedStep::run(std::shared_ptr<State> state, std::vector<Tensor> inputs,
                               CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(state != nullptr, "captured step: undefined; cs::capture makes one");
  const Running running(state->running);
  World* world = World::current();
  CS_REQUIRE(world != nullptr, "captured step: called outside of a rank's program");
  if (StepGraph::recording() != nullptr)
    fail(ErrorKind::Unsupported,
         "captured step: called while another captured step is being recorded");
  if (state->graph != nullptr) {
    Task<void> arrived = arrival_of(inputs);
    co_await std::move(arrived);
    state->graph->replay(inputs);
    co_return own_copy(state->graph->result());
  }
  if (state->eager_left == 0 && graph_device(*world->device()) != nullptr) {
    Task<Tensor> step = record(state, std::move(inputs));
    Tensor result = co_await std::move(step);
    co_return result;
  }
  Task<Tensor> step = state->body(std::move(inputs));
  Tensor result = co_await std::move(step);
  if (state->eager_left > 0) --state->eager_left;
  if (!result.defined()) co_return result;
  std::vector<Tensor> results{result};
  Task<void> arrived = arrival_of(std::move(results));
  co_await std::move(arrived);
  co_return copy_of(result);
}

Task<Tensor> CapturedStep::operator()(std::vector<Tensor> inputs, CallSite site) const {
  return run(state_, std::move(inputs), site);
}
Task<Tensor> CapturedStep::operator()(CallSite site) const { return run(state_, {}, site); }
Task<Tensor> CapturedStep::operator()(Tensor input, CallSite site) const {
  return run(state_, {std::move(input)}, site);
}
Task<Tensor> CapturedStep::operator()(Tensor first, Tensor second, CallSite site) const {
  return run(state_, {std::move(first), std::move(second)}, site);
}

bool CapturedStep::recorded() const { return state_ != nullptr && state_->graph != nullptr; }

CapturedStep capture(StepBody body, CaptureOptions options) {
  CS_REQUIRE(options.eager_steps >= 1, "capture: eager_steps must be at least 1, got ",
             options.eager_steps);
  CS_REQUIRE(body != nullptr, "capture: the body is an empty function");
  CapturedStep step;
  step.state_ = std::make_shared<CapturedStep::State>();
  step.state_->body = std::move(body);
  step.state_->eager_left = options.eager_steps;
  return step;
}

CapturedStep capture(std::function<Task<Tensor>()> body, CaptureOptions options) {
  CS_REQUIRE(body != nullptr, "capture: the body is an empty function");
  return capture([body = std::move(body)](const std::vector<Tensor>&) { return body(); }, options);
}

}  // namespace coshard
