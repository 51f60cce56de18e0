#pragma once
// In a simulation: when transfers go on. Owned by the simulation, which outlives the groups that
// ask; on the one thread of all ranks.

namespace coshard {

class TransferClock {
 public:
  // Whether a share of a transfer that is ready to be done may be done now. False: not yet, and all
  // groups are woken when to ask again.
  virtual bool go_on() = 0;
  // A share was claimed by the rank that runs: others may run before it is done. False: the
  // simulation is given up, and it is not to be done.
  virtual bool pause() = 0;
  // There is something for a progress thread to look at: ThreadGroup::progress() is to be called.
  virtual void offered() = 0;

 protected:
  ~TransferClock() = default;
};

}  // namespace coshard
