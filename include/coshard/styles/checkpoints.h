#pragma once
// Checkpoints: keeps the state of a training in a folder, every so many steps, and goes on from the
// newest. Owned by the program of each rank, on its thread; refers to what is added.
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

struct CheckpointsOptions {
  std::int64_t every = 0;                   // after() saves at multiples of it; 0: only save() does
  int keep = 0;                             // how many stay, the newest ones; 0: all
  std::int64_t file_bytes = 5'000'000'000;  // as SaveOptions
  // Further files of each checkpoint, such as config.json: bytes by name.
  std::map<std::string, std::string> files = {};
};

// folder/step-N is a folder as save() of training_state.h writes it: the model, as Hugging Face has
// it, and beside it training/. One process at a time writes a folder; coshard.json, with hashes of
// all bytes, is written last, and step-N gets its name when it is on the disk.
//
//   Checkpoints checkpoints(model, "runs/a", {.every = 100, .keep = 3});
//   checkpoints.add("optimizer", optimizer).add("position", position);
//   std::int64_t step = co_await checkpoints.resume();  // or start()
//   while (step < steps) { …; co_await checkpoints.after(++step); }
class Checkpoints {
 public:
  // Error{BadInput}: every or keep < 0; file_bytes < 1.
  Checkpoints(Module& model, std::string folder, CheckpointsOptions options = {});
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // What else a checkpoint has, in training/`name`.safetensors: an optimizer over parameters of the
  // model, further tensors; and numbers, which are all in values.safetensors, with the common random
  // stream. Error{BadInput}: a name that is there already, or no name of a file.
  Checkpoints& add(std::string name, Optimizer& optimizer);
  Checkpoints& add(std::string name, State state);
  Checkpoints& add(std::string name, std::int64_t& value);
  Checkpoints& add(std::string name, double& value);

  // All ranks call these, with the same step.

  // Takes the folder for a training that begins. Error{BadInput} on all ranks: as resume(); it has a
  // step already.
  Task<void> start(CallSite site = CallSite::current());
  // Fills all of it from the newest checkpoint and returns its step; 0: there is none. On other
  // meshes, plans or numbers of ranks, too; on the same ones, training goes on to the bit.
  //   Moves:  as load().
  //   Fails:  as load(); nothing is changed then but by an optimizer that does not fit, which is as new
  //           while the model has its values. Error{BadInput} on all ranks: another process saves
  //           there; the folder cannot be written, is not the same on all hosts, is a checkpoint
  //           itself, or has a name such as step-007 or a step that is no folder; the checkpoint has
  //           parts that were not added, or lacks some.
  Task<std::int64_t> resume(LoadOptions options = {}, CallSite site = CallSite::current());
  // What load() reports of the last resume(), such as parameters whose moments are new.
  const LoadReport& report() const;
  // After step `step`, counted from 1: if it is a multiple of `every`, awaits the save before and
  // begins another; resumes when the values are copied, and may change. A thread of each rank writes
  // them while training goes on, which calls after() at each step, and finish() at the end.
  //   Moves:  as save(); else, while one is on its way, a byte of each rank, for which none waits.
  //   Memory: this rank's share of all files, kept for the next one.
  //   Fails:  as save(), also for the save before.
  Task<void> after(std::int64_t step, CallSite site = CallSite::current());
  // Saves now, unless this step is the one that was saved last; resumes when it is on the disk.
  //   Moves:  as save().
  //   Fails:  as save(); what was there stays. Error{BadInput}: the folder has this step or a later
  //           one, which was not resumed from; values that differ between ranks.
  Task<void> save(std::int64_t step, CallSite site = CallSite::current());
  // Awaits the save that is on its way, if there is one. A program that ends without is an error.
  Task<void> finish(CallSite site = CallSite::current());

  std::string path(std::int64_t step) const;  // "folder/step-100"

 private:
  struct Inside;
  Task<void> open();
  Task<void> begin(std::int64_t step, bool in_background);
  std::unique_ptr<Inside> inside_;
};

}  // namespace coshard
#pragma GCC visibility pop
