#pragma once
// Checkpoints of training: the model as a Hugging Face folder, and beside it, in training/, what
// training goes on from. Rank's thread.
#include <string>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// The state of an optimizer over parameters of `module`, under their names: "w.exp_avg" and so on
// (Optimizer::moments), "w.step" (i64 []; 0: not stepped yet) unless it never has moments, as plain
// SGD, and "lr" (f64 []). Error{BadInput}: a parameter that the module has not registered.
State state_dict(Optimizer& optimizer, Module& module);

// The reverse; afterwards the next step is that of the optimizer whose state it was. Load the module
// first: the master copies of bf16 and f16 belong to its values. If it fails, the whole optimizer is
// as new. Error{BadInput} names the first five parameters, or moments, that the values lack, and that
// the optimizer does not have; with `strict` off, a parameter that lacks any is as new, and the
// report names it as missing.
Task<LoadReport> load_state_dict(Optimizer& optimizer, Module& module, State values,
                                 LoadOptions options = {}, CallSite site = CallSite::current());

// save(state_dict(module), …), and beside the model training/: optimizer.safetensors, its state;
// values.safetensors, which has "random_state" (i64 [3]), where the common random stream goes on; and
// coshard.json with hashes of all files, which load compares.
Task<void> save(Module& module, Optimizer& optimizer, std::string folder, SaveOptions options = {},
                CallSite site = CallSite::current());
// Fills module, optimizer and random state from such a folder, whatever mesh and layouts it was
// saved from: training goes on to the bit on the same ones. The report is that of the module, and
// names parameters that the optimizer starts as new, without LoadOptions::strict, as missing:
// "training/optimizer: w".
Task<LoadReport> load(Module& module, Optimizer& optimizer, std::string folder,
                      LoadOptions options = {}, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
