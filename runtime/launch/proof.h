#pragma once
// How the two ends of a connection prove to each other that they know the secret of their job,
// which itself is not sent: HMAC-SHA256 (RFC 2104) of what each end has drawn. Any thread.
#include <string>
#include <string_view>

namespace coshard {

// 32 random hexadecimal digits.
std::string draw_nonce();
// That of `process`, or of process 0 to it: 64 hexadecimal digits.
enum class ProofOf : char { Process = 'p', Zero = 'z' };
std::string proof_of(ProofOf who, std::string_view secret, int process, std::string_view drawn_here,
                     std::string_view drawn_by_zero);
// Takes the same time whether they differ early or late.
bool equal_proofs(std::string_view one, std::string_view other);

}  // namespace coshard
