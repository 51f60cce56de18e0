#include "runtime/comm/mpi/notice.h"

#include <cstring>
#include <type_traits>

#include <coshard/runtime/error.h>
#include "runtime/interned_text.h"

namespace coshard {
namespace {

constexpr std::size_t kLongestText = 4096;

class Writer {
 public:
  explicit Writer(std::size_t usual = 512) : bytes_(usual) {}
  std::vector<std::byte> take() {
    bytes_.resize(size_);
    return std::move(bytes_);
  }

  template <class T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof value);
  }
  void operator()(const std::string& text) { (*this)(std::string_view(text)); }
  void operator()(std::string_view text) {
    text = text.substr(0, kLongestText);
    (*this)(static_cast<std::uint32_t>(text.size()));
    append(text.data(), text.size());
  }
  void operator()(const std::vector<std::byte>& data) {
    (*this)(static_cast<std::uint32_t>(data.size()));
    append(data.data(), data.size());
  }
  void operator()(const Counts& counts) {
    (*this)(counts != nullptr);
    if (counts == nullptr) return;
    (*this)(static_cast<std::uint32_t>(counts->size()));
    append(counts->data(), counts->size() * sizeof(std::int64_t));
  }
  void operator()(const std::shared_ptr<const std::string>& text) {
    (*this)(text != nullptr);
    if (text != nullptr) (*this)(*text);
  }
  void operator()(const std::shared_ptr<const ReplicaHashes>& replicas) {
    (*this)(replicas != nullptr);
    if (replicas == nullptr) return;
    (*this)(static_cast<std::uint32_t>(replicas->hashes.size()));
    for (const std::uint64_t hash : replicas->hashes) (*this)(hash);
    (*this)(static_cast<std::uint32_t>(replicas->names.size()));
    for (const std::string& name : replicas->names) (*this)(name);
    (*this)(static_cast<std::uint32_t>(replicas->gradients.size()));
    for (const std::uint64_t hash : replicas->gradients) (*this)(hash);
    (*this)(static_cast<std::uint32_t>(replicas->about.size()));
    for (const std::string& text : replicas->about) (*this)(text);
  }
  template <class T, class Each>
  void each(std::vector<T>& all, const Each& each) {
    (*this)(static_cast<std::uint32_t>(all.size()));
    for (T& one : all) each(one);
  }

 private:
  void append(const void* data, std::size_t size) {
    if (size == 0) return;
    if (size > bytes_.size() - size_) bytes_.resize(2 * (bytes_.size() + size));
    std::memcpy(bytes_.data() + size_, data, size);
    size_ += size;
  }

  std::vector<std::byte> bytes_;  // more than are written
  std::size_t size_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    take(&value, sizeof value);
  }
  void operator()(std::string& text) {
    std::uint32_t size = 0;
    (*this)(size);
    text.resize(check(size));
    take(text.data(), size);
  }
  void operator()(std::string_view& text) {
    std::string own;
    (*this)(own);
    text = interned(std::move(own));
  }
  void operator()(std::vector<std::byte>& data) {
    std::uint32_t size = 0;
    (*this)(size);
    const std::byte* begin = left_.data();
    left_ = left_.subspan(check(size));
    data.assign(begin, begin + size);
  }
  void operator()(Counts& counts) {
    bool there = false;
    (*this)(there);
    if (!there) return;
    std::uint32_t size = 0;
    (*this)(size);
    check(size * sizeof(std::int64_t));
    auto all = std::make_shared<std::vector<std::int64_t>>(size);
    take(all->data(), size * sizeof(std::int64_t));
    counts = std::move(all);
  }
  void operator()(std::shared_ptr<const std::string>& text) {
    bool there = false;
    (*this)(there);
    if (!there) return;
    std::string own;
    (*this)(own);
    text = std::make_shared<const std::string>(std::move(own));
  }
  void operator()(std::shared_ptr<const ReplicaHashes>& replicas) {
    bool there = false;
    (*this)(there);
    if (!there) return;
    auto all = std::make_shared<ReplicaHashes>();
    each(all->hashes, *this);
    each(all->names, *this);
    each(all->gradients, *this);
    each(all->about, *this);
    replicas = std::move(all);
  }
  template <class T, class Each>
  void each(std::vector<T>& all, Each&& each) {
    std::uint32_t size = 0;
    (*this)(size);
    all.resize(check(size));
    for (T& one : all) each(one);
  }

 private:
  std::size_t check(std::size_t size) const {
    if (size > left_.size())
      fail(ErrorKind::CommFailed,
           str_cat("a notice from a peer process ends ", size - left_.size(),
                   " bytes too early; do all processes run the same build?"));
    return size;
  }
  void take(void* to, std::size_t size) {
    if (size == 0) return;
    std::memcpy(to, left_.data(), check(size));
    left_ = left_.subspan(size);
  }

  std::span<const std::byte> left_;
};

// One function for both directions: `Stream` is a Writer or a Reader.
template <class Stream>
void pass(Stream& stream, Collective& c) {
  stream(c.kind), stream(c.dtype), stream(c.reduce), stream(c.gather_first), stream(c.root);
  stream(c.outer), stream(c.extent), stream(c.middle), stream(c.inner), stream(c.scatter_extent);
  stream(c.control_only), stream(c.by_shards), stream(c.noted), stream(c.branch),
      stream(c.where.line);
  stream(c.counts), stream(c.scatter_counts), stream(c.send_counts), stream(c.recv_counts);
  stream(c.last_noted.value), stream(c.last_noted.of);
  stream(c.last_noted.what), stream(c.last_noted.of_what);
  stream(c.shape), stream(c.order), stream(c.origin), stream(c.names), stream(c.replicas);
  stream(c.label), stream(c.operation), stream(c.module), stream(c.branch_path);
  std::string_view file = c.where.file;
  stream(file);
  if (c.where.file != file.data()) c.where.file = file.data();
}
template <class Stream>
void pass(Stream& stream, IssuedNotice& n) {
  stream(n.group), stream(n.sequence), stream(n.rank), stream(n.tag), stream(n.print);
  stream(n.told), stream(n.data);
}
template <class Stream>
void pass(Stream& stream, PoisonNotice& n) {
  stream(n.run), stream(n.group), stream(n.cause);
}
template <class Stream>
void pass(Stream& stream, LeftNotice& n) {
  stream(n.run), stream(n.rank);
}
template <class Stream>
void pass(Stream& stream, RunNotice& n) {
  stream(n.run), stream(n.ranks);
}
template <class Stream>
void pass(Stream& stream, HelloNotice& n) {
  stream(n.pid), stream(n.host_name), stream(n.host), stream(n.pid_space);
}
template <class Stream>
void pass(Stream& stream, WelcomeNotice& n) {
  stream.each(n.processes, [&](HelloNotice& one) { pass(stream, one); });
  stream.each(n.addresses, [&](std::string& one) { stream(one); });
  stream(n.port), stream(n.secret);
}

template <class Stream>
void pass(Stream& stream, Announced& n) {
  stream(n.group), stream(n.number), stream(n.rank), stream(n.to), stream(n.print);
  pass(stream, n.args);
}
template <class Stream>
void pass(Stream& stream, Acknowledged& n) {
  stream(n.group), stream(n.count), stream(n.rank), stream(n.to);
}
template <class Stream>
void pass(Stream& stream, Asked& n) {
  stream(n.group), stream(n.number), stream(n.rank), stream(n.to);
  stream.each(n.prints, [&](std::uint64_t& one) { stream(one); });
}
template <class Stream>
void pass(Stream& stream, Answered& n) {
  stream(n.group), stream(n.number), stream(n.rank), stream(n.to), stream(n.count), stream(n.kind);
  stream(n.age_ns), stream(n.place), stream(n.known), stream(n.part), stream(n.print);
  pass(stream, n.args);
}

// A Writer changes nothing.
template <class N>
void write(Writer& out, const N& n) {
  out(static_cast<std::uint8_t>(Notice(std::in_place_type<N>).index()));
  pass(out, const_cast<N&>(n));
}

template <std::size_t kind = 0>
Notice read_notice(std::size_t wanted, Reader& in) {
  if constexpr (kind < std::variant_size_v<Notice>) {
    if (kind != wanted) return read_notice<kind + 1>(wanted, in);
    std::variant_alternative_t<kind, Notice> n;
    pass(in, n);
    if constexpr (std::is_same_v<decltype(n), IssuedNotice>) pass(in, n.args);
    return n;
  } else {
    fail(ErrorKind::CommFailed,
         str_cat("a notice from a peer process has kind ", wanted,
                 ", which is unknown; do all processes run the same build?"));
  }
}

}  // namespace

std::vector<std::byte> to_bytes(const IssuedNotice& notice, const Collective& args) {
  Writer out(512 + notice.data.size());
  write(out, notice);
  pass(out, const_cast<Collective&>(args));
  return out.take();
}

std::vector<std::byte> to_bytes(const Notice& notice) {
  if (const auto* issued = std::get_if<IssuedNotice>(&notice))
    return to_bytes(*issued, issued->args);
  Writer out;
  std::visit([&](const auto& n) { write(out, n); }, notice);
  return out.take();
}

std::vector<std::byte> to_bytes(const Announcement& said) {
  Writer out;
  std::visit([&](const auto& n) { write(out, n); }, said);
  return out.take();
}

Notice notice_of(std::span<const std::byte> bytes) {
  Reader in(bytes);
  std::uint8_t kind = 0;
  in(kind);
  return read_notice(kind, in);
}

}  // namespace coshard
