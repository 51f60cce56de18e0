#pragma once
// In a simulation: decides when transfers advance. Owned by the simulation, which outlives the
// groups; used on the single thread of all ranks.

namespace coshard {

class TransferClock {
 public:
  // Whether a ready share of a transfer may be done now. False: not yet; all groups are woken when
  // it is time to ask again.
  virtual bool go_on() = 0;
  // The running rank has claimed a share: lets others run before it is done. False: the simulation
  // was abandoned; do not do the share.
  virtual bool pause() = 0;
  // There is work for a progress thread: the simulation must call ThreadGroup::progress().
  virtual void offered() = 0;

 protected:
  ~TransferClock() = default;
};

}  // namespace coshard
