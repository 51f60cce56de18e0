#pragma once
// Sequential: each module's output is the next one's input. Owns its modules; rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace nn {

class Sequential : public Module {
 public:
  // Constructs a T from `arguments` and appends it under `name`.
  template <class T, class... Arguments>
  T& add(std::string name, Arguments&&... arguments) {
    auto module = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    T& made = *module;
    append(std::move(name), std::move(module));
    return made;
  }
  void append(std::string name, std::shared_ptr<Module> module);
  std::size_t size() const { return modules_.size(); }

 protected:
  Task<Tensor> run(Tensor x) override;

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace nn
}  // namespace coshard
#pragma GCC visibility pop
