#pragma once
// For who posts to a context from a thread that does not run it, while somebody may be destroying
// it: between lock() and unlock the context is there. A context closes its gate first of all that
// it does at its end, and waits for who is inside; so nothing is posted to what is half gone, and
// none of its handlers is destroyed on another thread.
#include <boost/asio/execution_context.hpp>
#include <memory>
#include <mutex>
#include <utility>

namespace coshard {

class PostGate {
 public:
  // Of `context`; made by the first who asks, after whatever services its users need: services are
  // shut down the newest first.
  static std::shared_ptr<PostGate> of(boost::asio::execution_context& context) {
    return boost::asio::use_service<Service>(context).gate;
  }
  // Calls `post`, which posts there, unless the context is gone.
  template <class Post>
  void pass(const Post& post) {
    const std::scoped_lock lock(mutex_);
    if (!closed_) post();
  }

 private:
  struct Service final : boost::asio::execution_context::service {
    using key_type = Service;
    explicit Service(boost::asio::execution_context& context)
        : boost::asio::execution_context::service(context) {}
    void shutdown() override {
      const std::scoped_lock lock(gate->mutex_);
      gate->closed_ = true;
    }
    inline static boost::asio::execution_context::id id;
    std::shared_ptr<PostGate> gate = std::make_shared<PostGate>();
  };

  std::mutex mutex_;  // the one below, and while somebody posts
  bool closed_ = false;
};

}  // namespace coshard
