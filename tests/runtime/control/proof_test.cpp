#include "runtime/control/proof.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace coshard {
namespace {

TEST(Proof, NoncesAre32DigitsAndDiffer) {
  std::set<std::string> all;
  for (int i = 0; i < 100; ++i) {
    const std::string one = random_nonce();
    EXPECT_EQ(one.size(), 32U);
    EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), std::string::npos);
    all.insert(one);
  }
  EXPECT_EQ(all.size(), 100U);
}

// Computed by Python's hmac.new(b"key", b"coshard 1 p 3 aa bb", "sha256").hexdigest().
TEST(Proof, IsTheHmacOfWhatBothEndsDrew) {
  EXPECT_EQ(proof_of(ProofOf::Connecting, "key", 3, "aa", "bb"),
            "5c3452656bc6cfeb8ad154618b67f9086601d28cfa689cccaa3af91ba0fb46fb");
}

TEST(Proof, DiffersWithEverythingItIsMadeOf) {
  const std::set<std::string> all{proof_of(ProofOf::Connecting, "key", 3, "aa", "bb"),
                                  proof_of(ProofOf::Accepting, "key", 3, "aa", "bb"),
                                  proof_of(ProofOf::Connecting, "kez", 3, "aa", "bb"),
                                  proof_of(ProofOf::Connecting, "", 3, "aa", "bb"),
                                  proof_of(ProofOf::Connecting, "key", 4, "aa", "bb"),
                                  proof_of(ProofOf::Connecting, "key", 3, "bb", "aa")};
  EXPECT_EQ(all.size(), 6U);
}

TEST(Proof, EqualProofsAreEqual) {
  EXPECT_TRUE(equal_proofs("", ""));
  EXPECT_TRUE(equal_proofs("abc", "abc"));
  EXPECT_FALSE(equal_proofs("abc", "abd"));
  EXPECT_FALSE(equal_proofs("abc", "abcd"));
  EXPECT_FALSE(equal_proofs("abc", ""));
}

}  // namespace
}  // namespace coshard
