#pragma once
// async_save: a save that is on its way to the disk while training goes on.
#include <memory>
#include <string>

#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/call_site.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

class SaveInProgress;

// A save that has been begun. Awaited once, by all ranks alike: when it resumes, all is on the disk
// and the folder has its name. A program that ends without it, and any that is destroyed before, has
// not saved, which is an Error{BadInput} of the program. Move-only; rank's thread.
//   Fails:  as save.
class Saving {
 public:
  explicit Saving(std::unique_ptr<SaveInProgress> save);
  Saving(Saving&&) noexcept;
  Saving& operator=(Saving&&) noexcept;
  ~Saving();

  Task<void> finish(CallSite site = CallSite::current());
  auto operator co_await() { return finish().operator co_await(); }

 private:
  std::unique_ptr<SaveInProgress> save_;
};

// As save, except that it resumes when the values are copied, and may change (torch's
// dcp.async_save). A thread of each rank writes them.
//   cs::Saving saving = co_await cs::async_save(cs::state_dict(model), "out");
//   …                // steps
//   co_await saving; // durable
//   Memory:  this rank's share of all files, until they are written.
Task<Saving> async_save(State state, std::string folder, SaveOptions options = {},
                        CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
